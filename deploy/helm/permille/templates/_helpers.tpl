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

{{/* Of a claim's size, in bytes: beside the database there is room for what its defragmentation and a backup write, and for the log. */}}
{{- define "permille.etcd-quota" -}}
{{- $suffix := regexFind "[kKMGTPE]i?$" . }}
{{- $bytes := trimSuffix $suffix . | float64 }}
{{- range until (add1 (index (dict "" -1 "k" 0 "K" 0 "M" 1 "G" 2 "T" 3 "P" 4 "E" 5) (trimSuffix "i" $suffix)) | int) }}
{{- $bytes = mulf $bytes (hasSuffix "i" $suffix | ternary 1024 1000) }}
{{- end }}
{{- min (mulf $bytes 0.3 | int64) 8589934592 }}
{{- end }}

{{/* Which store: url, claim or bundled. */}}
{{- define "permille.store" -}}
{{- $store := .Values.store }}
{{- $claim := or $store.claim.existing $store.claim.size }}
{{- if and $store.url $claim -}}
{{- fail "store.url and store.claim are two stores: leave one of them empty" }}
{{- else if and $store.claim.existing $store.claim.size -}}
{{- fail "store.claim.existing has its size already: leave store.claim.size empty, or have a claim of that size made by leaving store.claim.existing empty" }}
{{- else if $store.url -}}
url
{{- else if $claim -}}
claim
{{- else -}}
bundled
{{- end }}
{{- end }}

{{- define "permille.store-url" -}}
{{ index (dict "url" .Values.store.url "claim" "file:///var/lib/permille-store" "bundled" (printf "s3://traces?endpoint=https://permille-store.%s.svc:7070" .Release.Namespace)) (include "permille.store" .) }}
{{- end }}

{{- define "permille.store-credentials" -}}
{{ .Values.store.credentialsSecret | default (eq (include "permille.store" .) "bundled" | ternary "permille-store" "") }}
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
{{- include "permille.own-settings" (list "settings" .root.Values.settings) }}
{{- range $key, $value := .root.Values.settings }}
- {name: PERMILLE_{{ upper $key }}, value: {{ include "permille.setting" $value | quote }}}
{{- end }}
{{- end }}

{{/* What the chart sets has another value for it, or none; twice in a pod the last one would hold. Of LIST: whose settings, and they. */}}
{{- define "permille.own-settings" -}}
{{- $whose := first . }}
{{- $pod := "the chart's pods need it as it is: leave it out" }}
{{- $own := dict "store" "set store.url or store.claim" "etcd" "set etcd.endpoints" "etcd_ca" "set etcd.tlsSecret" "etcd_cert" "set etcd.tlsSecret" "etcd_key" "set etcd.tlsSecret" "tls_ca" "set tls.secret" "tls_cert" "set tls.secret" "tls_key" "set tls.secret" "node" $pod "state_dir" $pod "listen" $pod "advertise" $pod "metrics" $pod "health" $pod }}
{{- if ne $whose "settings" }}
{{- $own = ternary (dict "backend" "set controller.backend" "zone" "label the node, or set coverage.settings.zones") dict (eq $whose "controller.settings") }}
{{- end }}
{{- range $key, $value := last . }}
{{- with get $own $key }}
{{- fail (printf "%s.%s is set by the chart itself: %s" $whose $key .) }}
{{- end }}
{{- if and (eq $whose "settings") (regexMatch "^(allocator|controller|coverage|decoder|operator)_" $key) }}
{{- fail (printf "settings.%s is of one service: set %s" $key (regexReplaceAll "^([a-z]+)_" $key "$1.settings.")) }}
{{- end }}
{{- end }}
{{- end }}

{{/* A table as JSON; a large number as it was written in the file of values, not as 1.5e+06. */}}
{{- define "permille.setting" -}}
{{ kindIs "string" . | ternary . (toJson .) }}
{{- end }}

{{/* What coverage allows each caller, the webhook among them: whoever has the role external may ask for default alone. */}}
{{- define "permille.callers" -}}
{{- $alertmanager := .Values.alertmanager }}
{{- $callers := (.Values.coverage.settings | default dict).callers | default dict }}
{{- $callers = kindIs "string" $callers | ternary $callers (toJson $callers) | mustFromJson }}
{{- if not (kindIs "map" $callers) }}
{{- fail "coverage.settings.callers is a table by caller: {pager: {requests: 10}}" }}
{{- end }}
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
- {name: PERMILLE_STORE, value: {{ include "permille.store-url" .root | quote }}}
{{- if eq (include "permille.uses-store" .) "bundled" }}
# The AWS tools' variable, and that of delta-rs.
- {name: AWS_CA_BUNDLE, value: /etc/permille/store/ca.crt}
- {name: SSL_CERT_FILE, value: /etc/permille/store/ca.crt}
{{- end }}
{{- $settings := (index .root.Values .component).settings }}
{{- if and (eq .component "coverage") .root.Values.alertmanager.enabled }}
{{- $settings = merge (dict "callers" (include "permille.callers" .root)) ($settings | default dict) }}
{{- end }}
{{- include "permille.own-settings" (list (printf "%s.settings" .component) $settings) }}
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

{{/* Who reads and writes the store: which one. */}}
{{- define "permille.uses-store" -}}
{{- if has .component (list "controller" "decoder") }}{{ include "permille.store" .root }}{{ end }}
{{- end }}

{{- define "permille.command" -}}
{{- if eq (include "permille.uses-store" .) "claim" }}
# Who shares it shares a group with the others, and lets it write.
command: [sh, -c, 'umask 002; exec "$0"', permille-{{ .component }}]
{{- end }}
{{- if and (include "permille.uses-store" .) (include "permille.store-credentials" .root) }}
envFrom: [{secretRef: {name: {{ include "permille.store-credentials" .root }}}}]
{{- end }}
{{- end }}

{{- define "permille.mounts" -}}
- {name: tls, mountPath: /etc/permille/tls, readOnly: true}
- {name: etcd-tls, mountPath: /etc/permille/etcd, readOnly: true}
- {name: state, mountPath: /var/lib/permille}
- {name: tmp, mountPath: /tmp}
{{- if eq (include "permille.uses-store" .) "claim" }}
- {name: store, mountPath: /var/lib/permille-store}
{{- else if eq (include "permille.uses-store" .) "bundled" }}
- {name: store-authority, mountPath: /etc/permille/store, readOnly: true}
{{- end }}
{{- end }}

{{- define "permille.volumes" -}}
- {name: tls, secret: {secretName: {{ .secret | default .root.Values.tls.secret }}, defaultMode: 0440}}
- {name: etcd-tls, secret: {secretName: {{ .root.Values.etcd.tlsSecret }}, defaultMode: 0440}}
- {name: tmp, emptyDir: {}}
{{- if eq (include "permille.uses-store" .) "claim" }}
- {name: store, persistentVolumeClaim: {claimName: {{ .root.Values.store.claim.existing | default "permille-store" }}}}
{{- else if eq (include "permille.uses-store" .) "bundled" }}
- {name: store-authority, secret: {secretName: {{ .root.Values.store.tlsSecret }}, items: [{key: ca.crt, path: ca.crt}], defaultMode: 0440}}
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
  # Not each file of a large volume at each start.
  fsGroupChangePolicy: OnRootMismatch
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
