{{/* Of the hooks before an uninstall: the pod without its containers. */}}
{{- define "redlock-operator.drainPod" -}}
{{- $pod := dict "top" . "component" "drain" -}}
metadata:
  {{- include "redlock-operator.podMetadata" $pod | nindent 2 }}
spec:
  restartPolicy: Never
  enableServiceLinks: false
  {{- include "redlock-operator.podSettings" $pod | nindent 2 }}
{{- end -}}

{{- define "redlock-operator.drainContainer" -}}
{{- include "redlock-operator.program" . }}
resources:
  requests: {cpu: 10m, memory: 32Mi}
  limits: {memory: 64Mi}
securityContext:
  {{- include "redlock-operator.containerSecurityContext" . | nindent 2 }}
{{- end -}}
