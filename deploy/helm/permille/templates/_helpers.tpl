{{- define "permille.image" -}}
{{ required "image.registry is needed: where the images of deploy/images are" .root.Values.image.registry }}/permille-{{ .component }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "permille.selector" -}}
app.kubernetes.io/name: permille
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "permille.metadata" -}}
name: permille-{{ .component }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "permille.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "permille.etcd" -}}
{{- if .Values.etcd.endpoints -}}
{{ join "," .Values.etcd.endpoints }}
{{- else -}}
permille-etcd.{{ .Release.Namespace }}.svc:2379
{{- end -}}
{{- end }}

{{/* Whoever calls others: where etcd and the store are, and with which certificates. */}}
{{- define "permille.client" -}}
- {name: PERMILLE_NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: PERMILLE_STATE_DIR, value: /var/lib/permille}
- {name: PERMILLE_ETCD, value: {{ include "permille.etcd" .root | quote }}}
{{- range $part, $file := dict "CA" "ca.crt" "CERT" "tls.crt" "KEY" "tls.key" }}
- {name: PERMILLE_ETCD_{{ $part }}, value: /etc/permille/etcd/{{ $file }}}
- {name: PERMILLE_TLS_{{ $part }}, value: /etc/permille/tls/{{ $file }}}
{{- end }}
- {name: HOME, value: /tmp}
{{- range $key, $value := .root.Values.settings }}
- {name: PERMILLE_{{ upper $key }}, value: {{ include "permille.setting" $value | quote }}}
{{- end }}
{{- end }}

{{/* A large number of a file of values as it was written there, not as 1.5e+06. */}}
{{- define "permille.setting" -}}
{{ kindIs "string" . | ternary . (toJson .) }}
{{- end }}

{{/* What coverage allows each caller, the webhook among them: whoever has the role external may ask for default alone. */}}
{{- define "permille.callers" -}}
{{- $alertmanager := .Values.alertmanager }}
{{- $callers := (.Values.coverage.settings | default dict).callers | default "{}" | mustFromJson }}
{{- $name := $alertmanager.callerName | default "alertmanager" }}
{{- $own := get $callers (hasKey $callers $name | ternary $name "default") | default dict | deepCopy }}
{{- if $alertmanager.namespaces }}
{{- $_ := set $own "namespaces" (append $alertmanager.namespaces ($alertmanager.namespace | default "default") | uniq) }}
{{- else if not (hasKey $own "namespaces") }}
{{- fail "coverage would refuse every alert: set alertmanager.namespaces to the namespaces that alerts may name, for instance [shop], or [\"*\"] for all" }}
{{- end }}
{{- toJson (set $callers $name $own) }}
{{- end }}

{{- define "permille.service" -}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: PERMILLE_LISTEN, value: "0.0.0.0:7600"}
- {name: PERMILLE_ADVERTISE, value: "$(POD_IP):7600"}
- {name: PERMILLE_METRICS, value: "0.0.0.0:7601"}
- {name: PERMILLE_HEALTH, value: "0.0.0.0:7602"}
- {name: PERMILLE_STORE, value: {{ .root.Values.store.url | default "file:///var/lib/permille-store" | quote }}}
{{- $settings := (index .root.Values .component).settings }}
{{- if and (eq .component "coverage") .root.Values.alertmanager.enabled }}
{{- $settings = merge (dict "callers" (include "permille.callers" .root)) ($settings | default dict) }}
{{- end }}
{{- range $key, $value := $settings }}
- {name: PERMILLE_{{ upper $.component }}_{{ upper $key }}, value: {{ include "permille.setting" $value | quote }}}
{{- end }}
{{- end }}

{{- define "permille.ports-and-probes" -}}
ports:
  - {name: grpc, containerPort: 7600}
  - {name: metrics, containerPort: 7601}
  - {name: health, containerPort: 7602}
startupProbe: {grpc: {port: 7602}, periodSeconds: 2, failureThreshold: 60}
readinessProbe: {grpc: {port: 7602}, periodSeconds: 5}
livenessProbe: {grpc: {port: 7602}, periodSeconds: 20, timeoutSeconds: 10, failureThreshold: 6}
{{- end }}

{{/* Who reads and writes the store of a claim shares a group with the others, and lets it write. */}}
{{- define "permille.uses-claim" -}}
{{- if and (not .root.Values.store.url) (has .component (list "controller" "decoder")) }}yes{{ end }}
{{- end }}

{{- define "permille.command" -}}
{{- if include "permille.uses-claim" . }}
command: [sh, -c, 'umask 002; exec "$0"', permille-{{ .component }}]
{{- end }}
{{- if and .root.Values.store.credentialsSecret (has .component (list "controller" "decoder")) }}
envFrom: [{secretRef: {name: {{ .root.Values.store.credentialsSecret }}}}]
{{- end }}
{{- end }}

{{- define "permille.mounts" -}}
- {name: tls, mountPath: /etc/permille/tls, readOnly: true}
- {name: etcd-tls, mountPath: /etc/permille/etcd, readOnly: true}
- {name: state, mountPath: /var/lib/permille}
- {name: tmp, mountPath: /tmp}
{{- if include "permille.uses-claim" . }}
- {name: store, mountPath: /var/lib/permille-store}
{{- end }}
{{- end }}

{{- define "permille.volumes" -}}
- {name: tls, secret: {secretName: {{ .secret | default .root.Values.tls.secret }}, defaultMode: 0440}}
- {name: etcd-tls, secret: {secretName: {{ .root.Values.etcd.tlsSecret }}, defaultMode: 0440}}
- {name: tmp, emptyDir: {}}
{{- if include "permille.uses-claim" . }}
- {name: store, persistentVolumeClaim: {claimName: {{ .root.Values.store.claim.existing | default "permille-store" }}}}
{{- end }}
{{- end }}

{{/* Nothing of Kubernetes but what a service asks for: no token, no variables PERMILLE_ETCD_PORT of a Service, which are no settings. */}}
{{- define "permille.pod" -}}
automountServiceAccountToken: {{ eq .component "operator" }}
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "permille.restricted-pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "permille.restricted" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "permille.placement" -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with index $.values $key }}
{{ $key }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}
